"""Words that stand for others: nicknames, titles, legal forms of companies, and what streets are called."""

_NICKNAMES = """
abigail abby gail; abraham abe; agnes aggie; albert bert al; alexander alex alec sasha sascha xander sandy;
alexandra sandra alexa; alfred alf alfie; alice allie; amanda mandy; andrea andi; andrew andy drew; angela angie;
anna annie ania anja anni; anthony tony; antonia toni; antonio tonio tonino; arthur art artie; barbara barb barbie
babs; bartholomew bart; beatrice bea trixie; benjamin ben benny benji; bernard bernie; bernhard bernd; bradley brad;
brigitte gitte gitta; caroline carrie caro; carolyn lyn; catherine cathy cate; charles charlie chuck chas; charlotte
lotte lottie; christian chrissi; christina christa tina; christine chrissie; christopher chris kit topher; clarence
clancy; clifford cliff; cornelia conny; cornelius neil; curtis curt; cynthia cindy; daniel dan danny; david dave
davey; deborah deb debbie debra; dennis denny; dolores lola; donald don donny; dorothea dorle; dorothy dot dottie
dolly; douglas doug; edmund ned; edward ed eddie ted teddy; eleanor ellie nell nora; elizabeth liz lizzie beth betty
eliza libby elsie bess; elisabeth lisbeth liesl elli sissi; emily emmy; eugene gene; eva evi; evelyn evie; ferdinand
ferdi; florence flo; frances fran fanny; francesco franco; francis frank frankie; franziska franzi; frederick fred
freddy; friedrich fritz friedel; gabriel gabe; gabriele gabi gaby; george georgie; georg schorsch; gerald gerry;
gerhard gerd; geoffrey geoff; gertrude trudy gerti; gilbert gil; gregory greg; guillermo memo; gwendolyn gwen; hans
hansi; harold hal harry; heinrich heinz heiner; helen nellie; henrietta etta; henry hank; herbert herb; hildegard
hilde; howard howie; hubert hubie; ignacio nacho; isaac ike; isabella bella izzy; isidore izzie; jacob jake;
jacqueline jackie; james jim jimmy jamie jem; jane janie; janet jan; jasmine jas; jeffrey jeff; jennifer jen jenny;
jeremy jerry jem; jessica jess jessie; joan joanie; joanna jo; johann hannes; john jack johnny jock; jonathan jon
jonny nathan; jose pepe; joseph joe joey; josef sepp beppo; josephine josie; joshua josh; juan juanito; judith judy;
julia jule; juliana julie; katharina kathi katja katrin; katherine kate katie kathy kay kitty kat; kathleen kathie;
kenneth ken kenny; kimberly kim; klaus claus; konrad conny; kristina kristi; lawrence larry laurie; laura lori;
leonard leo len lenny; leonardo nardo; leopold poldi; lewis lew; lillian lil lily; louis lou louie; louise lulu;
ludwig lutz; lucille lucy; luis lucho; madeline maddie; magdalena lena magda; manuel manu manolo; manfred manni;
marcus marc; margaret maggie meg peggy marge margie madge daisy greta; margarete grete gretel; maria mia mitzi;
marjorie margery; martha marty; martin marti; mary molly polly; matthew matt; matthias matze hias; matilda tilly;
maximilian max maxi; melanie mel; melissa lissa missy; michael mike mick mickey mikey; michel michi; mildred millie;
mohammed mohamed muhammad mohammad muhamed; nancy nan; natalie nat; natalia natasha; nathaniel nate; nicholas nick
nicky; nikolaus klas niko; norbert nobbi; norman norm; olivia liv livvy; oliver ollie; oscar ossie; pamela pam;
patricia pat patty tricia trish; patrick paddy; paul pauli; penelope penny; peter pete; petra peti; philip phil;
phyllis phyl; priscilla cilla; rachel rae; ralph ralphie; raymond ray; rebecca becky becca; reginald reg reggie;
regina gina; renate nate; ricardo rico; richard rick ricky dick rich richie; robert bob bobby rob robbie bert;
rodney rod; roland rolli; ronald ron ronnie; rosemary rosie; roberto beto; rudolf rudi; rupert rupie; russell russ;
ruth ruthie; salvatore toto; samantha sammy; samuel sam; sarah sadie sally; sebastian seb basti bastian; sibylle
bille; sigmund sigi; sophia sophie sofie; stanley stan; stefan steffen; stephanie steph steffi; stephen stevie;
steven steve; stuart stu; susan sue susie suzie; susanne susi sanne; sylvester sly; teresa tess; theodore theo;
theresa terry tessa resi; therese tracy; thomas tom tommy; timothy tim timmy; tobias tobi; ulrich uli; ulrike rike;
ursula uschi ulla; valerie val; veronica ronnie; veronika vroni; victor vic; victoria vicky tori; vincent vince
vinny; virginia ginny; vladimir vova volodya; walter wally walt; wilhelm willi; wilhelmina mina minnie; william will
bill billy willie liam; wolfgang wolf wolfi; yvonne evi; zachary zach zack
"""
NICKNAMES: dict[str, str] = {}
"""From what people are called to the name in full; of two names the first counts."""
for _names in _NICKNAMES.split(";"):
    _name, *_short = _names.split()
    for _nickname in _short:
        NICKNAMES.setdefault(_nickname, _name)
for _name in {names.split()[0] for names in _NICKNAMES.split(";")}:
    NICKNAMES.pop(_name, None)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _abbreviations(text: str) -> dict[str, str]:
    """From each abbreviation to the word before the colon."""
    groups = (group.split(":") for group in text.split(";"))
    return {short: long.strip() for long, shorts in groups for short in shorts.split()}


TITLES = _words("""
mr mrs ms miss mister dr prof professor sir madam dame lord lady rev reverend herr herrn frau dipl ing phd md mba msc
bsc esq jr jun junior sr sen senior ii iii iv mag med jur rer nat hc sra srta don dona mme mlle monsieur madame dra
""")
PARTICLES = _words("""
mc mac o d de del della dela di da das do dos du der den des van von vom zu zur zum ter ten la le las los el st san
santa fitz
""")
LEGAL_FORMS = _words("""
inc incorporated corp corporation co company companies cos llc llp lp ltd limited plc pllc pc gmbh mbh ggmbh ag kg
kgaa ohg ug se gbr ek ev eg sa sas sarl sasu eurl snc spa srl sl slu sau sca scs nv bv vof cv oy oyj ab as asa aps kk
yk pty pte pvt private pt tbk doo dd zrt kft rt nyrt sp zoo sro spol ltda eireli cia ooo oao zao pao ao lda bhd sdn
gesellschaft aktiengesellschaft societe anonyme rl
""")
FORM_NAMES = _abbreviations("""
ltd: limited; inc: incorporated; corp: corporation; gmbh: mbh; ag: aktiengesellschaft; sa: anonyme; pvt: private;
: co company companies cos gesellschaft societe
""")
"""What legal forms are written as; of some words nothing is left."""
FILLERS = _words("and und et y e the der die das la le les el los of for fur pour de")
COMPANY_WORDS = _abbreviations("""
international: intl int; group: grp gruppe groupe; holding: hldg holdings; brothers: bros gebr gebruder;
manufacturing: mfg; technology: tech technologies;
service: svc svcs services serv; system: systems sys; association: assn assoc; department: dept; university: univ;
national: natl; management: mgmt mgt; engineering: eng engg; industry: industries ind; solution: solutions;
product: products prod; laboratory: lab labs laboratories; center: centre ctr zentrum; enterprise: enterprises ent;
partner: partners; consulting: consultants; saint: st sankt; communication: communications comm; american: amer;
distribution: distributors dist; software: sw; insurance: ins
""")
STREET_WORDS = _abbreviations("""
st: street str strasse strase straat strada; rd: road; av: avenue ave aven avenida avda; bd: boulevard blvd boul;
ln: lane; dr: drive drv; ct: court crt; pl: place platz plaza plz pza piazza; sq: square; hwy: highway; pkwy: parkway;
ter: terrace terr tce; cir: circle circ; cl: close; cres: crescent cr; gdns: gardens gdn; gr: grove gro; pde: parade;
trl: trail; way: wy; weg: wg; allee: al; ufer: uf; via: v; rue: r; calle: c; apt: apartment appt unit flat suite ste;
n: north nord; s: south sud; e: east ost; w: west; mt: mount; bldg: building; fl: floor; po: postfach; hs: haus house
""")
STREET_ENDS = ("strasse", "straat", "gasse", "platz", "allee", "weg", "str")
"""What German and Dutch write in one word with the name."""
CO_DOMAINS = "ac|co|com|edu|gov|ne|net|or|org"
